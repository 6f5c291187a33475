libtrainer_la_SOURCES += %D%/elf.c %D%/elf.h %D%/host.c %D%/host.h %D%/loader.c %D%/loader.h
