include %D%/console/local.mk
include %D%/csv/local.mk
include %D%/jsonl/local.mk
