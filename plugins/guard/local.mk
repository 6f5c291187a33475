include %D%/adagc/local.mk
include %D%/agc/local.mk
include %D%/clip_norm/local.mk
include %D%/clip_update_norm/local.mk
include %D%/clip_value/local.mk
include %D%/inject/local.mk
include %D%/skip_step/local.mk
include %D%/zclip/local.mk
