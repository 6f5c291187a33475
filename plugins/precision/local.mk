include %D%/bf16_wire_fp32_sum/local.mk
include %D%/fp32/local.mk
include %D%/fsdp2_bf16/local.mk
include %D%/fsdp_bf16/local.mk
include %D%/mixed/local.mk
include %D%/pure_bf16/local.mk
