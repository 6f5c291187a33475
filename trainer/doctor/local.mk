libtrainer_la_SOURCES += \
    %D%/check_job.c %D%/check_node.c %D%/check_run.c %D%/checks.c %D%/doctor.h %D%/facts.c \
    %D%/run_facts.c %D%/say.c %D%/say.h %D%/together.c
