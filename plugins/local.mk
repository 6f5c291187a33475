include %D%/regularizer/local.mk
include %D%/precision/local.mk
include %D%/schedule/local.mk
include %D%/monitor/local.mk
include %D%/optimizer/local.mk
include %D%/guard/local.mk
include %D%/sink/local.mk
include %D%/source/local.mk
