include %D%/attention_logits.mk
include %D%/data.mk
include %D%/model.mk
include %D%/regularizers.mk
include %D%/ranks.mk
include %D%/update.mk
