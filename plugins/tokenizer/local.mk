include %D%/bytes/local.mk
include %D%/sentencepiece/local.mk
