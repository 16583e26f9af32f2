// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/checkpoint/moment_list.h"
#include "exec/weights/hugging_face.h"
#include "schedules/base/json_reader.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

// The file tensors of a model, each once, sorted by name: so files are the same in every layout.
// The corrections of routers come last, as they have no moments.
struct TensorList {
  std::vector<TensorInfo> tensors;
  std::vector<CorrectionTensor> corrections;
  std::vector<std::vector<FileTensor>> of_place;  // by place
  std::vector<std::vector<std::size_t>> number;   // by place and file tensor of it

  TensorList(const Layout& layout, const std::vector<TensorPlace>& places)
      : corrections(correction_tensors(layout.model)), experts_(layout.model.experts.count) {
    std::map<std::string, std::size_t> numbers;
    for (const TensorPlace& place : places) {
      of_place.push_back(file_tensors(layout, place));
      for (const FileTensor& tensor : of_place.back()) numbers.emplace(tensor.name, 0);
    }
    for (auto& [name, at] : numbers) {
      at = tensors.size();
      tensors.push_back({.name = name});
    }
    for (const auto& file : of_place) {
      number.emplace_back();
      for (const FileTensor& tensor : file) {
        const std::size_t at = numbers.at(tensor.name);
        tensors[at].shape = tensor.shape;
        number.back().push_back(at);
      }
    }
  }
  // What the weights' file holds.
  std::vector<TensorInfo> weights() const {
    std::vector<TensorInfo> all = tensors;
    for (const CorrectionTensor& one : corrections) {
      all.push_back({.name = one.name, .shape = {experts_}});
    }
    return all;
  }

 private:
  std::int64_t experts_;
};

// Elements [begin, end) of a bucket that are of one tensor, on one rank.
struct Piece {
  const StoredBucket& stored;
  std::size_t place = 0;
  std::int32_t coordinate = 0;  // the rank's part of the tensor
  std::int64_t begin = 0, end = 0;
  // [begin, written): no other rank has to; of equal copies one goes to files
  std::int64_t written = 0;
};

// The pieces of one stored bucket within [begin, end).
void for_each_piece(const LocalRanks& local, const StoredBucket& stored, std::int64_t begin,
                    std::int64_t end, const std::function<void(const Piece&)>& visit) {
  const RankState& rank = *local.ranks[static_cast<std::size_t>(stored.rank - local.first)];
  const Bucket& bucket = local.schedule.buckets[stored.bucket.index()];
  const std::int32_t part = local.part(rank, bucket);
  const bool writes = local.stands_for_all(rank, bucket);
  for (std::size_t i = 0; i < local.places.size(); ++i) {
    const TensorPlace& place = local.places[i];
    if (place.bucket != stored.bucket) continue;
    Piece piece{.stored = stored,
                .place = i,
                .coordinate = part,
                .begin = std::max(begin, place.offset),
                .end = std::min(end, place.offset + place.what.elements)};
    if (piece.begin >= piece.end) continue;
    // A tied table, and every tensor of a bidirectional pipeline, lies on two positions: the first
    // in the list writes.
    const auto first = std::ranges::find(local.places, place.name, &TensorPlace::name);
    const std::int64_t counted = counted_elements(local.layout, place, part);
    piece.written =
        writes && &*first == &place ? std::min(piece.end, place.offset + counted) : piece.begin;
    visit(piece);
  }
}

// `values`: of the bucket's elements from `first` on. Calls visit(tensor number, run, its values).
template <class Value>
void for_each_value(const TensorList& list, const LocalRanks& local, const Piece& piece,
                    Value* values, std::int64_t first,
                    const std::function<void(std::size_t, const FileRun&, Value*)>& visit) {
  const TensorPlace& place = local.places[piece.place];
  for_each_run(local.layout, place, list.of_place[piece.place], piece.coordinate,
               piece.begin - place.offset, piece.end - place.offset, [&](const FileRun& run) {
                 visit(list.number[piece.place][run.tensor], run,
                       values + (place.offset + run.local - first));
               });
}

// What this process has, into files that exist; what all have alike the first writes. Error:
// `infeasible` where a number is not finite.
Result<> write_tensors(const TensorList& list, const LocalRanks& local,
                       const std::vector<StoredBucket>& all, bool first, TensorFilesWriter& model,
                       TensorFilesWriter& optimizer) {
  const std::int64_t experts = local.model.experts.count;
  for (std::size_t i = 0; i < list.corrections.size() && first; ++i) {
    model.write(list.tensors.size() + i, 0, experts,
                local.correction.data() + list.corrections[i].layer * experts, 1);
  }
  Result<> finite;
  for (const StoredBucket& stored : all) {
    for_each_part(stored.own_first, stored.own_last, [&](std::int64_t begin, std::int64_t end) {
      const auto write = [&](const std::vector<float>& values, TensorFilesWriter& files,
                             std::size_t skip) {
        const auto name_of = [&](std::size_t number) {
          return &files == &model
                     ? list.tensors[number].name
                     : moment_list(list.tensors, row_of(local.layout.plan.optimizer))[number].name;
        };
        for_each_piece(local, stored, begin, end, [&](Piece piece) {
          piece.end = piece.written;
          if (piece.begin >= piece.end) return;
          for_each_value<const float>(
              list, local, piece, values.data(), begin,
              [&](std::size_t tensor, const FileRun& run, const float* data) {
                for (std::int64_t i = 0; i < run.count && finite; ++i) {
                  if (std::isfinite(data[i * run.stride])) continue;
                  finite = Error{.message = name_of(skip + tensor) + " is no longer finite",
                                 .infeasible = true};
                }
                files.write(skip + tensor, run.element, run.count, data, run.stride);
              });
        });
      };
      write(read_parameters(local.device, stored, begin, end), model, 0);
      for (std::size_t i = 0; i < stored.moments.size(); ++i) {
        const float* moment = stored.moments[i];
        if (moment == nullptr) continue;
        write(read_state(local.device, stored, moment, begin, end), optimizer,
              i * list.tensors.size());
      }
    });
  }
  if (!finite) return finite;
  const Result<> parameters = model.finish(), moments = optimizer.finish();
  return parameters ? moments : parameters;
}

// The tensors of files by the model's list: every one there, none unknown, all of their shapes.
// `prefix`: what may stand before names, or be missing.
Result<std::vector<TensorFiles::Tensor>> match(const TensorFiles& files, const Transformer& model,
                                               const std::vector<TensorInfo>& wanted,
                                               std::string_view prefix) {
  const auto plain = [prefix](std::string_view name) {
    return std::string(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
  };
  std::map<std::string, std::size_t> number;
  for (std::size_t i = 0; i < wanted.size(); ++i) number[plain(wanted[i].name)] = i;
  std::vector<TensorFiles::Tensor> found(wanted.size());
  for (const TensorFiles::Tensor& tensor : files.tensors()) {
    const std::string& file = tensor.file->path();
    const std::string& name = tensor.info->name;
    const auto at = number.find(plain(name));
    if (at == number.end()) {
      if (is_buffer(model, name)) continue;
      if (name.ends_with("_proj_blocks") || name.ends_with("_proj_scales")) {
        return json_error(file, 0, name,
                          "is of a file in MXFP4: F32, F16 and BF16 are read; transformers writes "
                          "one (Mxfp4Config(dequantize=True))");
      }
      std::vector<std::string_view> known;
      known.reserve(wanted.size());
      for (const TensorInfo& one : wanted) known.push_back(one.name);
      return json_error(
          file, 0, name,
          "the model has no such tensor; the nearest is " + std::string(nearest(name, known)));
    }
    const TensorInfo& want = wanted[at->second];
    if (tensor.info->shape != want.shape) {
      return json_error(file, 0, name,
                        "has shape " + shape_text(tensor.info->shape) + ", the model's is " +
                            shape_text(want.shape));
    }
    if (!SafetensorsFile::readable(*tensor.info)) {
      return json_error(file, 0, name, "is " + tensor.info->type + ", not F32, F16 or BF16");
    }
    if (found[at->second].info != nullptr) return json_error(file, 0, name, "stands twice");
    found[at->second] = tensor;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (found[i].info == nullptr) return json_error(files.path(), 0, wanted[i].name, "is missing");
  }
  return found;
}

}  // namespace

Result<> prepare_checkpoints(const std::string& directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  const std::string probe = directory + "/.write" + std::to_string(getpid());
  if (!problem && !fs::is_directory(directory))
    problem = std::make_error_code(std::errc::not_a_directory);
  if (problem) return Error{directory + ": cannot write: " + problem.message()};
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return cannot_write(directory);
  ::close(file);
  ::unlink(probe.c_str());
  return {};
}

Result<> save_checkpoint(const std::string& directory, const CheckpointState& state,
                         const Interpreter& run, const Together& together,
                         std::int64_t shard_bytes) {
  const LocalRanks& local = run.local();
  const TensorList list(local.layout, local.places);
  const std::string name = step_name(state.step), folder = directory + '/' + name + ".tmp";
  std::optional<TensorFilesWriter> model, optimizer;
  const auto open = [&]() -> Result<> {
    auto first =
        TensorFilesWriter::open(together.first, folder, "model", list.weights(), shard_bytes);
    if (!first) return first.error();
    auto second = TensorFilesWriter::open(
        together.first, folder, "optimizer",
        moment_list(list.tensors, row_of(local.layout.plan.optimizer)), shard_bytes);
    if (!second) return second.error();
    model.emplace(std::move(first).value());
    optimizer.emplace(std::move(second).value());
    return {};
  };
  const auto make = [&]() -> Result<> {
    remove_all(folder);
    if (::mkdir(folder.c_str(), 0777) != 0) return cannot_write(folder);
    return open();
  };
  const auto finish = [&]() -> Result<> {
    for (const TensorFilesWriter* files : {&*model, &*optimizer}) {
      if (files->index().empty()) continue;
      const Result<> written = write_synced(files->index_path(), files->index());
      if (!written) return written;
    }
    CheckpointState whole = state;
    whole.written = written_before(directory) + 1;
    for (const char* stem : {"model", "optimizer"}) {
      if (const Result<> added = add_digests(folder, stem, whole.digests); !added) return added;
    }
    // All else lies on the disk before state.json, which says that it does.
    if (const Result<> synced = sync_folder(folder); !synced) return synced;
    const Result<> written = write_synced(folder + "/state.json", state_json(whole, local.model));
    if (!written) return written;
    const Result<> synced = sync_folder(folder);
    return synced ? publish_step(directory, name) : synced;
  };
  // Each phase waits for the one before in all processes.
  Result<> done = together.agree(together.first ? make() : Result<>());
  if (done) {
    const Result<> joined = together.first ? Result<>() : open();
    done = together.agree(
        joined ? write_tensors(list, local, run.stored(), together.first, *model, *optimizer)
               : joined);
  }
  if (done) done = together.agree(together.first ? finish() : Result<>());
  if (!done && together.first) remove_all(folder);
  return done;
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const Layout& layout,
                                    const std::vector<TensorPlace>& places) {
  const Result<CheckpointPlace> located = locate_checkpoint(path);
  if (!located) return located.error();
  const CheckpointPlace& where = located.value();
  const Transformer& model = layout.model;
  const TensorList list(layout, places);
  Checkpoint made;
  made.note_ = where.note;
  const auto add = [&](const std::string& file, const std::vector<TensorInfo>& wanted,
                       std::string_view prefix, std::vector<TensorFiles::Tensor>& to) -> Result<> {
    const Digests& digests = made.state_.digests;
    Result<TensorFiles> files = TensorFiles::open(file, [&](const SafetensorsFile& one) {
      return digests.empty() ? Result<>() : check_header(one, digests);
    });
    if (!files) return files.error();
    Result<std::vector<TensorFiles::Tensor>> found = match(files.value(), model, wanted, prefix);
    if (!found) return found.error();
    to = std::move(found).value();
    made.files_.push_back(std::move(files).value());
    return {};
  };
  if (where.folder.empty()) {
    const Result<> read = add(where.weights, list.weights(), file_prefix(model), made.parameters_);
    if (!read) return read.error();
    return made;
  }
  Result<CheckpointState> state = read_state(where.folder + "/state.json", model);
  if (!state) return state.error();
  made.state_ = std::move(state).value();
  if (made.state_.optimizer != row_of(layout.plan.optimizer).name) {
    return json_error(where.folder + "/state.json", 0, "plan.optimizer",
                      "the checkpoint is of " + json_excerpt(made.state_.optimizer) +
                          ", this run has " + std::string(row_of(layout.plan.optimizer).name) +
                          ": its weights alone can be gone on from, model.safetensors");
  }
  for (const std::string stem : {"model", "optimizer"}) {
    const std::string file = TensorFiles::find(where.folder, stem);
    if (file.empty()) return Error{where.folder + '/' + stem + ".safetensors: is missing"};
    const bool weights = stem == "model";
    if (!made.state_.digests.empty() && file.ends_with(".json")) {
      if (const Result<> same = check_index(file, made.state_.digests); !same) return same.error();
    }
    const Result<> read = add(
        file, weights ? list.weights() : moment_list(list.tensors, row_of(layout.plan.optimizer)),
        weights ? file_prefix(model) : "", weights ? made.parameters_ : made.moments_);
    if (!read) return read.error();
  }
  return made;
}

Result<> Checkpoint::load(Interpreter& run) const {
  const LocalRanks& local = run.local();
  const TensorList list(local.layout, local.places);
  // A tensor is checked right before its first element is read: it lies in the cache then.
  Result<> sound;
  std::set<const TensorInfo*> checked;
  const auto check = [&](const TensorFiles::Tensor& tensor) {
    if (state_.digests.empty() || !sound || !checked.insert(tensor.info).second) return;
    sound = check_tensor(*tensor.file, *tensor.info, state_.digests);
  };
  std::int64_t parts = 0;
  const auto forget_at_times = [&] {
    if (++parts % 64 != 0) return;  // 16 MiB
    for (const TensorFiles& files : files_) files.forget();
  };
  for (const StoredBucket& stored : run.stored()) {
    // Elements [begin, end) of the bucket; 0 where the vocabulary is padded.
    const auto read = [&](const std::vector<TensorFiles::Tensor>& from, std::size_t skip,
                          std::int64_t begin, std::int64_t end) {
      std::vector<float> values(static_cast<std::size_t>(end - begin), 0.0F);
      for_each_piece(local, stored, begin, end, [&](const Piece& piece) {
        for_each_value<float>(list, local, piece, values.data(), begin,
                              [&](std::size_t tensor, const FileRun& at, float* data) {
                                const TensorFiles::Tensor& found = from[skip + tensor];
                                check(found);
                                found.file->read(*found.info, at.element, at.count, data,
                                                 at.stride);
                              });
      });
      return values;
    };
    for_each_part(stored.first, stored.last, [&](std::int64_t begin, std::int64_t end) {
      write_parameters(local.device, stored, begin, read(parameters_, 0, begin, end));
      forget_at_times();
    });
    if (stored.moments[0] != nullptr && has_optimizer()) {
      for_each_part(stored.own_first, stored.own_last, [&](std::int64_t begin, std::int64_t end) {
        for (std::size_t i = 0; i < stored.moments.size(); ++i) {
          if (stored.moments[i] == nullptr) continue;
          write_state(local.device, stored, stored.moments[i], begin,
                      read(moments_, i * list.tensors.size(), begin, end));
        }
        forget_at_times();
      });
    } else {
      clear_state(local.device, stored);
    }
    run.rest(stored);
    if (!sound) return sound;
  }
  const std::int64_t experts = local.model.experts.count;
  std::vector<float> correction = local.correction;
  for (std::size_t i = 0; i < list.corrections.size(); ++i) {
    const TensorFiles::Tensor& found = parameters_[list.tensors.size() + i];
    check(found);
    found.file->read(*found.info, 0, experts,
                     correction.data() + list.corrections[i].layer * experts, 1);
  }
  run.set_correction(std::move(correction));
  return sound;
}

}  // namespace rehearse::exec
