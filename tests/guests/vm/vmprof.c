/* SPDX-License-Identifier: Apache-2.0 */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"
