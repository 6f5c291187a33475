libtrainer_la_SOURCES += %D%/scaffold.c %D%/scaffold.h
nodist_libtrainer_la_SOURCES = %D%/templates.c

# Templates of plugins, built into the program as texts: an installed program needs no data files.
scaffold_templates = %D%/makefile %D%/readme \
    %D%/regularizer.c %D%/regularizer_test.c %D%/regularizer.cfg \
    %D%/precision.c %D%/precision_test.c %D%/precision.cfg \
    %D%/schedule.c %D%/schedule_test.c %D%/schedule.cfg \
    %D%/monitor.c %D%/monitor_test.c %D%/monitor.cfg \
    %D%/optimizer.c %D%/optimizer_test.c %D%/optimizer.cfg \
    %D%/guard.c %D%/guard_test.c %D%/guard.cfg \
    %D%/sink.c %D%/sink_test.c %D%/sink.cfg \
    %D%/source.c %D%/source_test.c %D%/source.cfg \
    %D%/tokenizer.c %D%/tokenizer_test.c %D%/tokenizer.cfg
EXTRA_DIST += $(scaffold_templates) %D%/embed.awk
CLEANFILES += %D%/templates.c

%D%/templates.c: %D%/embed.awk $(scaffold_templates)
	$(AM_V_GEN)$(MKDIR_P) %D% && (cd $(srcdir) && $(AWK) -f %D%/embed.awk $(scaffold_templates)) \
	    >$@-t && mv $@-t $@

# What pkg-config finds with PKG_CONFIG_PATH=<build folder>/trainer: plugins can be written against a
# ballast that is built but not installed.
noinst_DATA = trainer/ballast-uninstalled.pc
CLEANFILES += trainer/ballast-uninstalled.pc
trainer/ballast-uninstalled.pc: Makefile
	$(AM_V_GEN)printf '%s\n' 'program=$(abs_top_builddir)/trainer/ballast' \
	    'plugindir=$(abs_top_builddir)/plugins/.libs' '' 'Name: ballast' \
	    'Description: Plugin ABI of Ballast, from its build folder' 'Version: $(PACKAGE_VERSION)' \
	    'Cflags: -I$(abs_top_srcdir)/trainer/include' >$@-t && mv $@-t $@
