include %D%/constant/local.mk
include %D%/cosine/local.mk
include %D%/inverse_sqrt/local.mk
include %D%/linear/local.mk
include %D%/piecewise/local.mk
include %D%/wsd/local.mk
