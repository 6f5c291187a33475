include %D%/effective_lr/local.mk
include %D%/embedding_health/local.mk
include %D%/logits/local.mk
include %D%/gauge/local.mk
include %D%/noise_scale/local.mk
include %D%/norms/local.mk
include %D%/reduction/local.mk
