libtrainer_la_SOURCES += \
    %D%/bootstrap.c \
    %D%/bootstrap.h \
    %D%/bootstrap_environment.c \
    %D%/bootstrap_pmi2.c \
    %D%/order.c \
    %D%/order.h \
    %D%/order_channels.c \
    %D%/order_internal.h \
    %D%/order_ring.c \
    %D%/order_tree.c \
    %D%/sum.c \
    %D%/sum.h \
    %D%/sum_exchange.c \
    %D%/sum_internal.h \
    %D%/sum_math.c \
    %D%/sum_math.h \
    %D%/sum_measure.c \
    %D%/sum_route.c \
    %D%/sum_route.h \
    %D%/sum_schedule.c \
    %D%/sum_schedule.h \
    %D%/sum_stream.c \
    %D%/transport.h \
    %D%/world.c \
    %D%/world.h \
    %D%/world_collectives.c \
    %D%/world_internal.h \
    %D%/world_load.c \
    %D%/world_messages.c

# Loaded at run time when there are several processes; in the build tree it lies with the plugins.
transport_ucx_sources = \
    %D%/transport.h \
    %D%/ucx.c \
    %D%/ucx_internal.h \
    %D%/ucx_messages.c \
    %D%/ucx_watch.c
if HAVE_UCX
pkglib_LTLIBRARIES += plugins/transport_ucx.la
plugins_transport_ucx_la_SOURCES = $(transport_ucx_sources) \
    trainer/base/clock.c \
    trainer/base/error.c
plugins_transport_ucx_la_CFLAGS = $(AM_CFLAGS) $(UCX_CFLAGS)
plugins_transport_ucx_la_LDFLAGS = -module -avoid-version -shared -Wl,-z,defs \
    -export-symbols-regex '^ballast_transport_v1$$' $(SANITIZER_CFLAGS)
plugins_transport_ucx_la_LIBADD = $(UCX_LIBS)
else
EXTRA_DIST += $(transport_ucx_sources)
endif
