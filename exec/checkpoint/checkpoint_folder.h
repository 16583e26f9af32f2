// SPDX-License-Identifier: Apache-2.0
// The folder that checkpoints lie in: how a new one gets its name, and which one a run goes on
// from.
//
// A step is written as step-000020.tmp, state.json last, brought to the disk, and renamed; one of
// the same name stands aside as step-000020.old meanwhile; then `latest` is renamed into its place.
// So after an end at any moment a folder with a sound state.json is whole, whatever its name says.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/base/result.h"

namespace rehearse::exec {

std::string step_name(std::int64_t step);     // "step-000020"
Error cannot_write(const std::string& path);  // of errno
// Makes the names in a folder last.
Result<> sync_folder(const std::string& path);
Result<> write_synced(const std::string& path, const std::string& text);
void remove_all(const std::string& path);  // as far as it can

// Gives the finished folder DIR/NAME.tmp its name and makes it the latest.
Result<> publish_step(const std::string& directory, const std::string& name);
// How many checkpoints were written into the directory before: CheckpointState::written of a new
// one is one more.
std::int64_t written_before(const std::string& directory);

// Where the tensors of a checkpoint are: its folder with state.json, or a file of weights alone.
struct CheckpointPlace {
  std::string folder, weights;
  std::string note;  // one line where the directory's `latest` names another folder than this
};
// `path`: a checkpoint's folder, a directory of such, a safetensors file, its index, or a folder
// with model.safetensors. Of a directory the newest whole step: the last one written, where the
// files do not say (version 0.1) the one that `latest` names, else the most steps. Errors: nothing
// there; a newer step whose state.json is damaged (it is not passed over in silence).
Result<CheckpointPlace> locate_checkpoint(const std::string& path);

}  // namespace rehearse::exec
