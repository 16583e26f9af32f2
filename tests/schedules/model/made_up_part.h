// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rehearse {

// Whether layers have it: a matrix [2 h, h], each of t ranks with its rows of it.
extern bool made_up_part;

}  // namespace rehearse
