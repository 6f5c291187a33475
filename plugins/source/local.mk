include %D%/synthetic/local.mk
include %D%/text/local.mk
include %D%/tokens/local.mk
