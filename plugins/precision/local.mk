include %D%/fp32/local.mk
include %D%/mixed/local.mk
include %D%/pure_bf16/local.mk
