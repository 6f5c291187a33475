libtrainer_la_SOURCES += %D%/backend.h
include %D%/cpu/local.mk
