libtrainer_la_SOURCES += \
    %D%/page.c %D%/page.h %D%/plot.c %D%/plot.h %D%/series.c %D%/series.h
