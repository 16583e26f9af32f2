// SPDX-License-Identifier: Apache-2.0
// What doctor is given: which kind of file each is, and all of one kind.
#pragma once

#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "viz/hang/dump.h"
#include "viz/profile/families.h"
#include "viz/profile/rank_profile.h"

namespace rehearse::cli {

// A job that hangs leaves dumps, or the text of RAS; one that is slow profiles.
struct DoctorFiles {
  std::vector<viz::Dump> dumps;
  std::string ras, ras_path;  // empty: none
  std::vector<viz::RankProfile> profiles;
  viz::Families families;
};

// Files and folders as the command line names them. Errors: which file is wrong, and why; two kinds
// among them.
Result<DoctorFiles> read_doctor_files(const std::vector<std::string>& named);

}  // namespace rehearse::cli
