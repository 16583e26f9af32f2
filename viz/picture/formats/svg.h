// SPDX-License-Identifier: Apache-2.0
// Scene -> SVG 1.1: shapes and text as such, strips as small embedded pictures. Equal scenes give
// equal bytes.
#pragma once

#include <string>

#include "viz/picture/scene.h"

namespace rehearse::viz {

std::string svg(const Scene& scene);

}  // namespace rehearse::viz
