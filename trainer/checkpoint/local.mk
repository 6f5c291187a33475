libtrainer_la_SOURCES += \
    %D%/checkpoint.c %D%/checkpoint.h %D%/compare.c %D%/copy.c %D%/copy.h %D%/folders.c \
    %D%/internal.h %D%/merged.c %D%/merged.h %D%/reader.c %D%/safetensors.c %D%/safetensors.h \
    %D%/saver.c %D%/saver.h
