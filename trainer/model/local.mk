libtrainer_la_SOURCES += %D%/params.c %D%/init.c %D%/apply.c %D%/block.c %D%/head.c %D%/rows.c \
	%D%/model.c %D%/model.h %D%/internal.h
