include %D%/fp32/local.mk
include %D%/mixed/local.mk
