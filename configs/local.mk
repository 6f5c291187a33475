configsdir = $(pkgdatadir)/configs
configs_DATA = %D%/demo.cfg
EXTRA_DIST += %D%/demo.cfg
