plugin_LTLIBRARIES += plugins/monitor_noise_scale.la
plugins_monitor_noise_scale_la_SOURCES = %D%/noise_scale.c
plugins_monitor_noise_scale_la_LDFLAGS = $(plugin_ldflags)
plugins_monitor_noise_scale_la_LIBADD = -lm

check_PROGRAMS += plugins/monitor/noise_scale/noise_scale_test
plugins_monitor_noise_scale_noise_scale_test_SOURCES = %D%/noise_scale_test.c $(plugin_test_sources)
plugins_monitor_noise_scale_noise_scale_test_LDADD = $(test_ldadd)
