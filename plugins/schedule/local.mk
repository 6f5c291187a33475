include %D%/constant/local.mk
include %D%/cosine/local.mk
include %D%/inverse_sqrt/local.mk
