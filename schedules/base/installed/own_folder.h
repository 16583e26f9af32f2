// SPDX-License-Identifier: Apache-2.0
// Where this code lies on the disk: what is installed with it is found from there, wherever the
// whole is moved to.
#pragma once

#include <string>

namespace rehearse {

// The folder of the program, or of the shared object, that holds this code. Empty where the system
// does not say.
std::string own_folder();

}  // namespace rehearse
