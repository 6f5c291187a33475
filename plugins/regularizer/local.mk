include %D%/label_smoothing/local.mk
include %D%/logit_penalty/local.mk
include %D%/mean_logit/local.mk
include %D%/mu_centering/local.mk
include %D%/norm_softmax/local.mk
include %D%/z_loss/local.mk
