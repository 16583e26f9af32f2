#include "exec/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "exec/hugging_face.h"
#include "schedules/json_reader.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

// The file tensors of a model, each once, sorted by name: so files are the same in every layout.
struct TensorList {
  std::vector<TensorInfo> tensors;
  std::vector<std::vector<FileTensor>> of_place;  // by place
  std::vector<std::vector<std::size_t>> number;   // by place and file tensor of it

  TensorList(const Transformer& model, const Plan& plan, const std::vector<TensorPlace>& places) {
    std::map<std::string, std::size_t> numbers;
    for (const TensorPlace& place : places) {
      of_place.push_back(file_tensors(model, plan, place));
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
};

// AdamW's first moments of all tensors, then the second ones.
std::vector<TensorInfo> moment_list(const std::vector<TensorInfo>& tensors) {
  std::vector<TensorInfo> moments;
  for (const std::string moment : {"exp_avg.", "exp_avg_sq."}) {
    for (const TensorInfo& tensor : tensors) {
      moments.push_back({.name = moment + tensor.name, .shape = tensor.shape});
    }
  }
  return moments;
}

std::string step_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%06lld", static_cast<long long>(step));
  return text;
}

Error machine_error(const std::string& path) {
  return Error{path + ": cannot write: " + std::strerror(errno)};
}

// Makes the names in a folder last.
Result<> sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = folder >= 0 && fsync(folder) == 0;
  const Error error = machine_error(path);
  if (folder >= 0) ::close(folder);
  if (!done) return error;
  return {};
}

Result<> write_synced(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
              std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  const Error error = machine_error(path);
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (!good) return error;
  return {};
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

Result<> rename_to(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return machine_error(to);
  return {};
}

// Elements [begin, end) of a bucket that are of one tensor, on one rank.
struct Piece {
  const StoredBucket& stored;
  std::size_t place = 0;
  std::int32_t coordinate = 0;  // of the rank on tp
  std::int64_t begin = 0, end = 0;
  // [begin, written): no other rank has to; of equal copies one goes to files
  std::int64_t written = 0;
};

// The pieces of one stored bucket within [begin, end).
void for_each_piece(const LocalRanks& local, const StoredBucket& stored, std::int64_t begin,
                    std::int64_t end, const std::function<void(const Piece&)>& visit) {
  const RankState& rank = *local.ranks[static_cast<std::size_t>(stored.rank - local.first)];
  const bool replica = local.sharded() || rank.replica == 0;
  for (std::size_t i = 0; i < local.places.size(); ++i) {
    const TensorPlace& place = local.places[i];
    if (place.bucket != stored.bucket) continue;
    Piece piece{.stored = stored,
                .place = i,
                .coordinate = rank.at.tensor,
                .begin = std::max(begin, place.offset),
                .end = std::min(end, place.offset + place.what.elements)};
    if (piece.begin >= piece.end) continue;
    // A tied table, and every tensor of a bidirectional pipeline, lies on two positions: the first
    // in the list writes.
    const auto first = std::ranges::find(local.places, place.name, &TensorPlace::name);
    const std::int64_t counted = counted_elements(local.model, local.plan, place, rank.at.tensor);
    piece.written =
        replica && &*first == &place ? std::min(piece.end, place.offset + counted) : piece.begin;
    visit(piece);
  }
}

// `values`: of the bucket's elements from `first` on. Calls visit(tensor number, run, its values).
template <class Value>
void for_each_value(const TensorList& list, const LocalRanks& local, const Piece& piece,
                    Value* values, std::int64_t first,
                    const std::function<void(std::size_t, const FileRun&, Value*)>& visit) {
  const TensorPlace& place = local.places[piece.place];
  for_each_run(local.model, local.plan, place, list.of_place[piece.place], piece.coordinate,
               piece.begin - place.offset, piece.end - place.offset, [&](const FileRun& run) {
                 visit(list.number[piece.place][run.tensor], run,
                       values + (place.offset + run.local - first));
               });
}

// What this process has, into files that exist.
Result<> write_tensors(const TensorList& list, const LocalRanks& local,
                       const std::vector<StoredBucket>& all, TensorFilesWriter& model,
                       TensorFilesWriter& optimizer) {
  for (const StoredBucket& stored : all) {
    for_each_part(stored.own_first, stored.own_last, [&](std::int64_t begin, std::int64_t end) {
      const auto write = [&](const std::vector<float>& values, TensorFilesWriter& files,
                             std::size_t skip) {
        for_each_piece(local, stored, begin, end, [&](Piece piece) {
          piece.end = piece.written;
          if (piece.begin >= piece.end) return;
          for_each_value<const float>(
              list, local, piece, values.data(), begin,
              [&](std::size_t tensor, const FileRun& run, const float* data) {
                files.write(skip + tensor, run.element, run.count, data, run.stride);
              });
        });
      };
      write(read_parameters(local.backend, stored, begin, end), model, 0);
      if (stored.m == nullptr) return;
      write(read_state(local.backend, stored, stored.m, begin, end), optimizer, 0);
      write(read_state(local.backend, stored, stored.v, begin, end), optimizer,
            list.tensors.size());
    });
  }
  const Result<> parameters = model.finish(), moments = optimizer.finish();
  return parameters ? moments : parameters;
}

// Gives the finished folder its name. An older one of that name stays until the new one stands.
Result<> publish(const std::string& directory, const std::string& name) {
  const std::string final = directory + '/' + name, old = final + ".old";
  std::error_code none;
  if (fs::exists(final, none)) {
    remove_all(old);
    if (const Result<> aside = rename_to(final, old); !aside) return aside;
  }
  if (const Result<> named = rename_to(final + ".tmp", final); !named) {
    if (fs::exists(old, none)) std::rename(old.c_str(), final.c_str());
    return named;
  }
  if (const Result<> synced = sync_folder(directory); !synced) return synced;
  const std::string latest = directory + "/latest";
  if (const Result<> written = write_synced(latest + ".tmp", name + '\n'); !written) return written;
  if (const Result<> named = rename_to(latest + ".tmp", latest); !named) return named;
  remove_all(old);
  return sync_folder(directory);
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

// Where the tensors of a checkpoint are: its folder with state.json, or a file of weights alone.
struct Where {
  std::string folder, weights;
};
Result<Where> locate(const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return Error{path + ": no such file or folder"};
  if (!fs::is_directory(path, none)) return Where{.folder = {}, .weights = path};
  if (fs::exists(path + "/state.json", none)) return Where{.folder = path, .weights = {}};
  if (fs::exists(path + "/latest", none)) {
    Result<std::string> read = read_text_file(path + "/latest", 256);
    if (!read) return read.error();
    std::string name = std::move(read).value();
    while (!name.empty() && name.back() == '\n') name.pop_back();
    const std::string folder = path + '/' + name;
    if (!name.starts_with("step-") || name.find('/') != name.npos ||
        !fs::is_directory(folder, none)) {
      return Error{path + "/latest: names no checkpoint of this folder: " + json_excerpt(name)};
    }
    return Where{.folder = folder, .weights = {}};
  }
  std::string weights = TensorFiles::find(path, "model");
  if (weights.empty())
    return Error{path + ": holds no checkpoint (no latest, state.json or model.safetensors)"};
  return Where{.folder = {}, .weights = std::move(weights)};
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
  if (file < 0) return machine_error(directory);
  ::close(file);
  ::unlink(probe.c_str());
  return {};
}

Result<> save_checkpoint(const std::string& directory, const CheckpointState& state,
                         const Interpreter& run, const Together& together,
                         std::int64_t shard_bytes) {
  const LocalRanks& local = run.local();
  const TensorList list(local.model, local.plan, local.places);
  const std::string name = step_name(state.step), folder = directory + '/' + name + ".tmp";
  std::optional<TensorFilesWriter> model, optimizer;
  const auto open = [&]() -> Result<> {
    auto first =
        TensorFilesWriter::open(together.first, folder, "model", list.tensors, shard_bytes);
    if (!first) return first.error();
    auto second = TensorFilesWriter::open(together.first, folder, "optimizer",
                                          moment_list(list.tensors), shard_bytes);
    if (!second) return second.error();
    model.emplace(std::move(first).value());
    optimizer.emplace(std::move(second).value());
    return {};
  };
  const auto make = [&]() -> Result<> {
    remove_all(folder);
    if (::mkdir(folder.c_str(), 0777) != 0) return machine_error(folder);
    return open();
  };
  const auto finish = [&]() -> Result<> {
    for (const TensorFilesWriter* files : {&*model, &*optimizer}) {
      if (files->index().empty()) continue;
      const Result<> written = write_synced(files->index_path(), files->index());
      if (!written) return written;
    }
    const Result<> written = write_synced(folder + "/state.json", state_json(state, local.model));
    if (!written) return written;
    const Result<> synced = sync_folder(folder);
    return synced ? publish(directory, name) : synced;
  };
  // Each phase waits for the one before in all processes.
  Result<> done = together.agree(together.first ? make() : Result<>());
  if (done) {
    const Result<> joined = together.first ? Result<>() : open();
    done = together.agree(joined ? write_tensors(list, local, run.stored(), *model, *optimizer)
                                 : joined);
  }
  if (done) done = together.agree(together.first ? finish() : Result<>());
  if (!done && together.first) remove_all(folder);
  return done;
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const Transformer& model,
                                    const Plan& plan, const std::vector<TensorPlace>& places) {
  const Result<Where> located = locate(path);
  if (!located) return located.error();
  const Where& where = located.value();
  const TensorList list(model, plan, places);
  Checkpoint made;
  const auto add = [&](const std::string& file, const std::vector<TensorInfo>& wanted,
                       std::string_view prefix, std::vector<TensorFiles::Tensor>& to) -> Result<> {
    Result<TensorFiles> files = TensorFiles::open(file);
    if (!files) return files.error();
    Result<std::vector<TensorFiles::Tensor>> found = match(files.value(), model, wanted, prefix);
    if (!found) return found.error();
    to = std::move(found).value();
    made.files_.push_back(std::move(files).value());
    return {};
  };
  if (where.folder.empty()) {
    const Result<> read = add(where.weights, list.tensors, file_prefix(model), made.parameters_);
    if (!read) return read.error();
    return made;
  }
  Result<CheckpointState> state = read_state(where.folder + "/state.json", model);
  if (!state) return state.error();
  made.state_ = std::move(state).value();
  for (const std::string stem : {"model", "optimizer"}) {
    const std::string file = TensorFiles::find(where.folder, stem);
    if (file.empty()) return Error{where.folder + '/' + stem + ".safetensors: is missing"};
    const bool weights = stem == "model";
    const Result<> read =
        add(file, weights ? list.tensors : moment_list(list.tensors),
            weights ? file_prefix(model) : "", weights ? made.parameters_ : made.moments_);
    if (!read) return read.error();
  }
  return made;
}

void Checkpoint::load(Interpreter& run) const {
  const LocalRanks& local = run.local();
  const TensorList list(local.model, local.plan, local.places);
  for (const StoredBucket& stored : run.stored()) {
    // Elements [begin, end) of the bucket; 0 where the vocabulary is padded.
    const auto read = [&](const std::vector<TensorFiles::Tensor>& from, std::size_t skip,
                          std::int64_t begin, std::int64_t end) {
      std::vector<float> values(static_cast<std::size_t>(end - begin), 0.0F);
      for_each_piece(local, stored, begin, end, [&](const Piece& piece) {
        for_each_value<float>(list, local, piece, values.data(), begin,
                              [&](std::size_t tensor, const FileRun& at, float* data) {
                                const TensorFiles::Tensor& found = from[skip + tensor];
                                found.file->read(*found.info, at.element, at.count, data,
                                                 at.stride);
                              });
      });
      return values;
    };
    for_each_part(stored.first, stored.last, [&](std::int64_t begin, std::int64_t end) {
      write_parameters(local.backend, stored, begin, read(parameters_, 0, begin, end));
    });
    if (stored.m != nullptr && has_optimizer()) {
      for_each_part(stored.own_first, stored.own_last, [&](std::int64_t begin, std::int64_t end) {
        write_state(local.backend, stored, stored.m, begin, read(moments_, 0, begin, end));
        write_state(local.backend, stored, stored.v, begin,
                    read(moments_, list.tensors.size(), begin, end));
      });
    } else {
      clear_state(local.backend, stored);
    }
    for (const TensorFiles& files : files_) files.forget();
  }
}

}  // namespace rehearse::exec
