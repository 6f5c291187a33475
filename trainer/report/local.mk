libtrainer_la_SOURCES += \
    %D%/axis.c %D%/axis.h %D%/curve.c %D%/curve.h %D%/document.c %D%/document.h \
    %D%/facts.c %D%/facts.h %D%/figures.c %D%/figures.h %D%/gnuplot.c %D%/gnuplot.h \
    %D%/header_tables.c %D%/heat.c %D%/image.c %D%/input.c %D%/input.h %D%/page.c %D%/page.h \
    %D%/plot.c %D%/plot.h %D%/series.c %D%/series.h %D%/spikes.c %D%/spikes.h \
    %D%/tables.c %D%/tables.h
