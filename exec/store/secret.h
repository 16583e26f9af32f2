// SPDX-License-Identifier: Apache-2.0
// The secret that the processes of a run share, so that no stranger joins them
// (exec/store/channel.h).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "schedules/base/result.h"

namespace rehearse::exec {

inline constexpr std::size_t kSafeSecret = 16;  // characters; shorter ones can be guessed

using Variables = std::function<const char*(const char*)>;  // std::getenv

std::string fresh_secret();  // 64 hexadecimal digits

// REHEARSE_SECRET, or what is in the file that REHEARSE_SECRET_FILE names, without white space at
// its end. nullopt: neither is set. Error: both are, one is empty, or the file is no regular file
// of this user (or root) that nobody else may read.
Result<std::optional<std::string>> given_secret(const Variables& variable);

// The secret of this user's runs on this machine, in `folder`/rehearse-<uid>/secret: made by
// whoever is first. Error: the folder cannot be made, or somebody else may read it.
Result<std::string> secret_of_user(const std::string& folder);

// The given one. Without one: where all processes are on this host, that of the user, in /tmp or
// else $TMPDIR; otherwise an error that says how to make one.
Result<std::string> secret_of_run(const Variables& variable, bool one_host);

}  // namespace rehearse::exec
