include %D%/adamc/local.mk
include %D%/adamw/local.mk
include %D%/coupled_adam/local.mk
include %D%/lion/local.mk
include %D%/sgd/local.mk
include %D%/stable_adamw/local.mk
