# The trainer: everything but main() in one convenience library, so that tests link it too.
noinst_LTLIBRARIES += libtrainer.la
libtrainer_la_SOURCES = \
    %D%/alarms.c \
    %D%/alarms.h \
    %D%/attempts.c \
    %D%/attempts.h \
    %D%/budget.c \
    %D%/budget.h \
    %D%/cmd.h \
    %D%/cmd_check.c \
    %D%/cmd_data.c \
    %D%/cmd_data_info.c \
    %D%/cmd_data_pack.c \
    %D%/cmd_doctor.c \
    %D%/cmd_plugin.c \
    %D%/cmd_plugins.c \
    %D%/cmd_reduce.c \
    %D%/cmd_report.c \
    %D%/cmd_train.c \
    %D%/cmd_weights.c \
    %D%/header.c \
    %D%/header.h \
    %D%/job.c \
    %D%/job.h \
    %D%/reduce.c \
    %D%/reduce.h \
    %D%/regularizers.c \
    %D%/regularizers.h \
    %D%/run.c \
    %D%/run.h \
    %D%/run_checkpoint.c \
    %D%/run_evaluate.c \
    %D%/run_gradient.c \
    %D%/run_identity.c \
    %D%/run_internal.h \
    %D%/run_resume.c \
    %D%/run_services.c \
    %D%/run_state.c \
    %D%/run_state.h \
    %D%/run_world.c \
    %D%/run_step.c \
    %D%/rundir.c \
    %D%/rundir.h \
    %D%/rank_rows.c \
    %D%/rank_rows.h \
    %D%/replicas.c \
    %D%/replicas.h \
    %D%/setup.c \
    %D%/setup.h \
    %D%/shard.c \
    %D%/shard.h \
    %D%/stop.c \
    %D%/stop.h \
    %D%/update.c \
    %D%/update.h
libtrainer_la_LIBADD =

include %D%/base/local.mk
include %D%/config/local.mk
include %D%/plugin/local.mk
include %D%/backend/local.mk
include %D%/model/local.mk
include %D%/data/local.mk
include %D%/checkpoint/local.mk
include %D%/collectives/local.mk
include %D%/metrics/local.mk
include %D%/lab/local.mk
include %D%/report/local.mk
include %D%/doctor/local.mk
include %D%/scaffold/local.mk

bin_PROGRAMS += %D%/ballast
%C%_ballast_SOURCES = %D%/main.c
%C%_ballast_LDADD = libtrainer.la $(core_libs)

ballastincludedir = $(includedir)/ballast
ballastinclude_HEADERS = \
    %D%/include/ballast/guard.h %D%/include/ballast/kernel.h %D%/include/ballast/monitor.h \
    %D%/include/ballast/optimizer.h %D%/include/ballast/plugin.h \
    %D%/include/ballast/precision.h %D%/include/ballast/regularizer.h \
    %D%/include/ballast/schedule.h %D%/include/ballast/sink.h %D%/include/ballast/source.h \
    %D%/include/ballast/tensor.h %D%/include/ballast/tokenizer.h

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = %D%/ballast.pc
