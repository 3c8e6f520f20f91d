/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The context of an iterator over tasks. */
#pragma once

#include "kernel/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop
