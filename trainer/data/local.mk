libtrainer_la_SOURCES += %D%/data.h %D%/open.c %D%/pack.c %D%/sampler.c
