libtrainer_la_SOURCES += %D%/data.h %D%/open.c %D%/pack.c %D%/pack.h %D%/pack_encode.c \
    %D%/pack_internal.h %D%/pack_read.c %D%/pack_write.c %D%/paths.c %D%/paths.h \
    %D%/shard_format.c %D%/shard_format.h %D%/shard_scan.c %D%/shard_scan.h %D%/prefetch.c %D%/prefetch.h %D%/sampler.c
