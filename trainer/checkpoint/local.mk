libtrainer_la_SOURCES += \
    %D%/checkpoint.c %D%/checkpoint.h %D%/compare.c %D%/internal.h %D%/reader.c \
    %D%/safetensors.c %D%/safetensors.h
