// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exec/backend/element.h"
#include "schedules/base/json_reader.h"

namespace rehearse::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie");

constexpr std::size_t kLength = 8;                  // [B] of the header's length
constexpr std::uint64_t kMaxHeader = 100'000'000;   // [B], the format's own limit
constexpr std::int64_t kWaiting = kFileBuffer / 4;  // [elements]

struct Type {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<Type, 15> kTypes{{{"F64", 8},
                                       {"I64", 8},
                                       {"U64", 8},
                                       {"F32", 4},
                                       {"I32", 4},
                                       {"U32", 4},
                                       {"F16", 2},
                                       {"BF16", 2},
                                       {"I16", 2},
                                       {"U16", 2},
                                       {"F8_E4M3", 1},
                                       {"F8_E5M2", 1},
                                       {"I8", 1},
                                       {"U8", 1},
                                       {"BOOL", 1}}};

std::int64_t bytes_of(std::string_view type) {  // 0: unknown
  const auto at = std::ranges::find(kTypes, type, &Type::name);
  return at == kTypes.end() ? 0 : at->bytes;
}

template <class T>
void widen(const std::byte* from, std::int64_t count, float* out, std::int64_t stride) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + 2 * i, sizeof value);
    out[i * stride] = value;
  }
}

Error fault(const std::string& path, const std::string& tensor, const std::string& what) {
  return json_error(path, 0, tensor, what);
}

// One member of the header; `data`: where the tensors' bytes begin, `size`: the file's.
Result<TensorInfo> read_tensor(const std::string& path, const JsonMember& member, std::int64_t data,
                               std::int64_t size) {
  const std::string& name = member.key;
  TensorInfo tensor;
  tensor.name = name;
  const JsonValue* type = member.value.find("dtype") ? &member.value.find("dtype")->value : nullptr;
  const JsonValue* shape =
      member.value.find("shape") ? &member.value.find("shape")->value : nullptr;
  const JsonValue* offsets =
      member.value.find("data_offsets") ? &member.value.find("data_offsets")->value : nullptr;
  if (type == nullptr || shape == nullptr || offsets == nullptr || !type->is(JsonKind::String) ||
      !shape->is(JsonKind::Array) || !offsets->is(JsonKind::Array) || offsets->items.size() != 2) {
    return fault(path, name, "needs dtype, shape and two data_offsets");
  }
  tensor.type = type->text;
  const std::int64_t element = bytes_of(tensor.type);
  if (element == 0) return fault(path, name, "unknown dtype " + json_excerpt(tensor.type));
  std::int64_t bytes = element;
  for (const JsonValue& extent : shape->items) {
    if (!extent.is(JsonKind::Integer) || extent.integer < 0 ||
        __builtin_mul_overflow(bytes, extent.integer, &bytes)) {
      return fault(path, name, "not a shape");
    }
    tensor.shape.push_back(extent.integer);
  }
  const JsonValue &begin = offsets->items[0], &end = offsets->items[1];
  if (!begin.is(JsonKind::Integer) || !end.is(JsonKind::Integer) || begin.integer < 0 ||
      end.integer < begin.integer) {
    return fault(path, name, "not a pair of data_offsets");
  }
  if (end.integer - begin.integer != bytes) {
    return fault(path, name,
                 "its data_offsets hold " + std::to_string(end.integer - begin.integer) +
                     " bytes, " + tensor.type + ' ' + shape_text(tensor.shape) + " takes " +
                     std::to_string(bytes));
  }
  if (end.integer > size - data) {
    return fault(path, name,
                 "ends at byte " + std::to_string(end.integer) + " of " +
                     std::to_string(size - data) + ": the file is cut short");
  }
  tensor.begin = data + begin.integer;
  tensor.end = data + end.integer;
  return tensor;
}

// The header's text, padded so that the data begins on eight bytes; sets begin and end.
std::string header_of(std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  std::string text = "{";
  const auto member = [&text](const std::string& name) -> std::string& {
    if (text.size() > 1) text += ',';
    return text += json_quoted(name) + ':';
  };
  if (!metadata.empty()) {
    std::string strings;
    for (const auto& [key, value] : metadata) {
      strings += (strings.empty() ? "" : ",") + json_quoted(key) + ':' + json_quoted(value);
    }
    member("__metadata__") += '{' + strings + '}';
  }
  std::int64_t at = 0;
  for (TensorInfo& tensor : tensors) {
    tensor.begin = at;
    tensor.end = at += tensor.elements() * bytes_of(tensor.type);
    std::string shape;
    for (const std::int64_t extent : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    }
    member(tensor.name) += "{\"dtype\":\"" + tensor.type + "\",\"shape\":[" + shape +
                           "],\"data_offsets\":[" + std::to_string(tensor.begin) + ',' +
                           std::to_string(tensor.end) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  const auto data = static_cast<std::int64_t>(kLength + text.size());
  for (TensorInfo& tensor : tensors) {
    tensor.begin += data;
    tensor.end += data;
  }
  std::string header(kLength, '\0');
  std::memcpy(header.data(), &length, kLength);
  return header + text;
}

}  // namespace

std::int64_t TensorInfo::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + ']';
}

void Unmap::operator()(const std::byte* memory) const {
  munmap(const_cast<std::byte*>(memory), bytes);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return Error{path + ": cannot read: " + std::strerror(errno)};
  struct stat about {};
  const bool known = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  const std::int64_t size = known ? about.st_size : 0;
  void* mapped =
      size > 0 ? mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file, 0)
               : MAP_FAILED;
  ::close(file);
  if (!known) return Error{path + ": not a regular file"};
  if (size < static_cast<std::int64_t>(kLength))
    return Error{path + ": too short for a safetensors file"};
  if (mapped == MAP_FAILED) return Error{path + ": cannot read: " + std::strerror(errno)};
  SafetensorsFile made;
  made.path_ = path;
  made.memory_ = {static_cast<const std::byte*>(mapped), Unmap{static_cast<std::size_t>(size)}};

  std::uint64_t length = 0;
  std::memcpy(&length, made.memory_.get(), kLength);
  if (length > kMaxHeader || length > static_cast<std::uint64_t>(size) - kLength) {
    return Error{path + ": not a safetensors file, or cut short: its header would have " +
                 std::to_string(length) + " bytes"};
  }
  const std::string_view text(reinterpret_cast<const char*>(made.memory_.get()) + kLength, length);
  const Result<JsonValue> parsed = parse_json(text, path, 0);
  if (!parsed) return parsed.error();
  if (!parsed.value().is(JsonKind::Object))
    return Error{path + ": its header is not a JSON object"};
  const auto data = static_cast<std::int64_t>(kLength + length);
  made.header_bytes_ = kLength + length;
  for (const JsonMember& member : parsed.value().members) {
    if (member.key == "__metadata__") {
      for (const JsonMember& entry : member.value.members) {
        if (!entry.value.is(JsonKind::String))
          return fault(path, "__metadata__." + entry.key, "not a string");
        made.metadata_.emplace(entry.key, entry.value.text);
      }
      continue;
    }
    Result<TensorInfo> tensor = read_tensor(path, member, data, size);
    if (!tensor) return tensor.error();
    made.tensors_.push_back(std::move(tensor).value());
  }
  std::ranges::stable_sort(made.tensors_, {}, [](const TensorInfo& t) {
    return std::pair{t.begin, t.end};
  });
  std::int64_t at = data;
  for (const TensorInfo& tensor : made.tensors_) {
    if (tensor.begin != at) {
      return fault(path, tensor.name,
                   tensor.begin < at ? "overlaps the tensor before it" : "leaves a hole before it");
    }
    at = tensor.end;
    made.by_name_.emplace(tensor.name, made.by_name_.size());
  }
  if (at != size) {
    return Error{path + ": has " + std::to_string(size - at) + " bytes more than its tensors"};
  }
  return made;
}

void SafetensorsFile::forget() const {
  if (memory_ == nullptr) return;
  madvise(const_cast<std::byte*>(memory_.get()), memory_.get_deleter().bytes, MADV_DONTNEED);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

bool SafetensorsFile::readable(const TensorInfo& tensor) {
  return tensor.type == "F32" || tensor.type == "F16" || tensor.type == "BF16";
}

void SafetensorsFile::read(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                           float* out, std::int64_t stride) const {
  const std::int64_t element = bytes_of(tensor.type);
  const std::byte* from = memory_.get() + tensor.begin + first * element;
  if (tensor.type == "F32") {
    if (stride == 1) {
      std::memcpy(out, from, static_cast<std::size_t>(count * element));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(out + i * stride, from + 4 * i, 4);
    return;
  }
  if (tensor.type == "BF16") return widen<BFloat16>(from, count, out, stride);
  widen<Float16>(from, count, out, stride);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors)
    : path_(path), tensors_(std::move(tensors)) {}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      tensors_(std::move(other.tensors_)),
      file_(std::exchange(other.file_, -1)),
      waiting_(std::move(other.waiting_)),
      waiting_at_(other.waiting_at_),
      failure_(std::move(other.failure_)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ >= 0) ::close(file_);
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::vector<TensorInfo> tensors,
                                                    const Metadata& metadata) {
  const std::string header = header_of(tensors, metadata);
  SafetensorsWriter made(path, std::move(tensors));
  made.file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (made.file_ < 0) {
    made.fail();
    return Error{made.failure_};
  }
  const std::int64_t size =
      made.tensors_.empty() ? static_cast<std::int64_t>(header.size()) : made.tensors_.back().end;
  // A full disk shows here, before anything is computed; not every file system reserves.
  const int reserved = posix_fallocate(made.file_, 0, size);
  if (reserved != 0 && reserved != EOPNOTSUPP && reserved != EINVAL) errno = reserved;
  const bool sized = reserved == 0 || ((reserved == EOPNOTSUPP || reserved == EINVAL) &&
                                       ftruncate(made.file_, size) == 0);
  if (!sized) {
    made.fail();
    return Error{made.failure_};
  }
  for (std::size_t done = 0; done < header.size();) {
    const ssize_t wrote =
        pwrite(made.file_, header.data() + done, header.size() - done, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      made.fail();
      return Error{made.failure_};
    }
    done += static_cast<std::size_t>(wrote);
  }
  return made;
}

Result<SafetensorsWriter> SafetensorsWriter::join(const std::string& path,
                                                  std::vector<TensorInfo> tensors,
                                                  const Metadata& metadata) {
  header_of(tensors, metadata);
  SafetensorsWriter made(path, std::move(tensors));
  made.file_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (made.file_ < 0) {
    made.fail();
    return Error{made.failure_};
  }
  return made;
}

void SafetensorsWriter::fail() {
  if (failure_.empty()) failure_ = path_ + ": cannot write: " + std::strerror(errno);
}

void SafetensorsWriter::flush() {
  const auto* data = reinterpret_cast<const char*>(waiting_.data());
  const std::size_t bytes = waiting_.size() * sizeof(float);
  for (std::size_t done = 0; done < bytes && failure_.empty();) {
    const ssize_t wrote = pwrite(file_, data + done, bytes - done,
                                 static_cast<off_t>(waiting_at_ + static_cast<std::int64_t>(done)));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return fail();
    done += static_cast<std::size_t>(wrote);
  }
  waiting_.clear();
}

void SafetensorsWriter::write(std::size_t tensor, std::int64_t first, std::int64_t count,
                              const float* data, std::int64_t stride) {
  const std::int64_t begin = tensors_[tensor].begin + first * 4;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = begin + done * 4, room = kWaiting - std::ssize(waiting_);
    if (at != waiting_at_ + std::ssize(waiting_) * 4 || room == 0) {
      flush();
      waiting_at_ = at;
      continue;
    }
    const std::int64_t part = std::min(count - done, room);
    const float* from = data + done * stride;
    if (stride == 1) {
      waiting_.insert(waiting_.end(), from, from + part);
    } else {
      for (std::int64_t i = 0; i < part; ++i) waiting_.push_back(from[i * stride]);
    }
    done += part;
  }
}

Result<> SafetensorsWriter::finish() {
  flush();
  if (failure_.empty() && fsync(file_) != 0) fail();
  if (::close(std::exchange(file_, -1)) != 0) fail();
  if (!failure_.empty()) return Error{failure_};
  return {};
}

}  // namespace rehearse::exec
