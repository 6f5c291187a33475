libtrainer_la_SOURCES += %D%/metrics.c %D%/metrics.h
