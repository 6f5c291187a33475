libtrainer_la_SOURCES += \
    %D%/order.c %D%/order.h %D%/order_channels.c %D%/order_internal.h %D%/order_ring.c %D%/order_tree.c \
    %D%/sum.c %D%/sum.h %D%/sum_exchange.c %D%/sum_internal.h %D%/sum_math.c %D%/sum_math.h \
    %D%/sum_measure.c %D%/sum_stream.c \
    %D%/transport.h \
    %D%/world.c \
    %D%/world.h \
    %D%/world_collectives.c \
    %D%/world_internal.h
