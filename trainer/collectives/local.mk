libtrainer_la_SOURCES += \
    %D%/order.h \
    %D%/sum.h \
    %D%/transport.h \
    %D%/world.c \
    %D%/world.h \
    %D%/world_collectives.c \
    %D%/world_internal.h
