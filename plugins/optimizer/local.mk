include %D%/adamw/local.mk
include %D%/sgd/local.mk
