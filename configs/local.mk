configsdir = $(pkgdatadir)/configs
configs_DATA = %D%/demo.cfg
presetsdir = $(configsdir)/presets
presets_DATA = \
    %D%/presets/gpt2-124m.cfg %D%/presets/gpt2-355m.cfg %D%/presets/gpt2-774m.cfg \
    %D%/presets/gpt2-1558m.cfg %D%/presets/llama-1b.cfg %D%/presets/llama-7b.cfg \
    %D%/presets/olmo2-1b.cfg %D%/presets/olmo2-7b.cfg %D%/presets/seed-125m.cfg \
    %D%/presets/seed-1.3b.cfg
EXTRA_DIST += $(configs_DATA) $(presets_DATA)
