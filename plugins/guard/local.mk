include %D%/clip_norm/local.mk
include %D%/clip_update_norm/local.mk
include %D%/skip_step/local.mk
