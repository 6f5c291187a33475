libtrainer_la_SOURCES += %D%/lab.c %D%/lab.h %D%/law.c %D%/output.c %D%/values.c
