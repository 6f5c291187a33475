#include "doctor/doctor.h"

const struct bl_doctor_check bl_doctor_checks[] = {
    {"processes", bl_check_processes},
    {"set-up", bl_check_setup},
    {"program", bl_check_program},
    {"config", bl_check_config},
    {"plugins", bl_check_plugins},
    {"clocks", bl_check_clock},
    {"CPUs", bl_check_cpus},
    {"memory", bl_check_memory},
    {"GPUs", bl_check_gpus},
    {"limits", bl_check_limits},
    {"run directory", bl_check_directory},
    {"locks", bl_check_locks},
    {"disk", bl_check_disk},
    {"time limit", bl_check_time},
    {"requeue", bl_check_requeue},
};
const size_t bl_doctor_check_count = sizeof bl_doctor_checks / sizeof *bl_doctor_checks;
