// SPDX-License-Identifier: Apache-2.0
// The module's entry.
#include "viz/window/window_module.h"

#include "schedules/base/installed/module.h"

REHEARSE_MODULE(window, rehearse::viz::WindowModule, .run = rehearse::viz::window_module::run,
                .draw = rehearse::viz::window_module::draw)
