// SPDX-License-Identifier: Apache-2.0
// safetensors files: what is written reads back, 16-bit types convert, and every broken file is
// named.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "exec/checkpoint/tensor_files.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  Folder() {
    char name[] = "/tmp/safetensors_test.XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Folder() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + '/' + name; }
  std::string folder_;
};
using Safetensors = Folder;
using Index = Folder;

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
// A file from its parts.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}
std::vector<float> read_all(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<float> values(static_cast<std::size_t>(info->elements()));
  file.read(*info, 0, info->elements(), values.data(), 1);
  return values;
}

TEST_F(Safetensors, WritesWhatTheFormatSays) {
  auto made = SafetensorsWriter::create(
      at("a"), {{.name = "x", .shape = {2, 3}}, {.name = "y \"q\"", .shape = {}}},
      {{"format", "pt"}});
  ASSERT_TRUE(made) << made.error().message;
  SafetensorsWriter writer = std::move(made).value();
  const float column[] = {1, 4}, rest[] = {2, 3, 5, 6}, one = 7;
  writer.write(1, 0, 1, &one, 1);
  writer.write(0, 0, 1, column, 1);
  writer.write(0, 1, 2, rest, 1);
  writer.write(0, 3, 1, column + 1, 1);
  writer.write(0, 4, 2, rest + 2, 1);
  ASSERT_TRUE(writer.finish());
  // The header by hand, padded to eight bytes.
  std::string header =
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("y \"q\"":{"dtype":"F32","shape":[],"data_offsets":[24,28]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string bytes = get(at("a"));
  ASSERT_EQ(bytes.size(), 8 + header.size() + 28);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  const float expected[] = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + header.size(), expected, 28), 0);

  const auto file = SafetensorsFile::open(at("a"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(read_all(file.value(), "x"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file.value().metadata().at("format"), "pt");
  EXPECT_EQ(file.value().find("z"), nullptr);
}

// Row and column strides on both sides: what is written transposed reads back transposed.
TEST_F(Safetensors, StridesReachEveryElementOnce) {
  auto made = SafetensorsWriter::create(at("a"), {{.name = "x", .shape = {3, 2}}}, {});
  ASSERT_TRUE(made);
  SafetensorsWriter writer = std::move(made).value();
  const float rows[] = {1, 2, 3, 4, 5, 6};  // (2, 3), to be stored (3, 2)
  for (int c = 0; c < 3; ++c) writer.write(0, 2 * c, 2, rows + c, 3);
  ASSERT_TRUE(writer.finish());
  const auto file = SafetensorsFile::open(at("a"));
  ASSERT_TRUE(file);
  EXPECT_EQ(read_all(file.value(), "x"), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  std::vector<float> back(6);
  for (int c = 0; c < 3; ++c)
    file.value().read(*file.value().find("x"), 2 * c, 2, back.data() + c, 3);
  EXPECT_EQ(back, std::vector<float>(rows, rows + 6));
}

// 1, -2, the largest finite, the smallest subnormal, infinity; as the types' definitions say.
TEST_F(Safetensors, ConvertsSixteenBitTypes) {
  const std::string header = R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
                             R"("h":{"dtype":"F16","shape":[6],"data_offsets":[6,18]}})";
  std::string bytes = file_of(header, 18);
  const std::uint16_t bits[] = {0x3F80, 0xC000, 0x7F7F, 0x3C00, 0xC000,
                                0x7BFF, 0x0001, 0x8000, 0x7C00};
  std::memcpy(bytes.data() + 8 + header.size(), bits, 18);
  put(at("a"), bytes);
  const auto file = SafetensorsFile::open(at("a"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(read_all(file.value(), "b"), (std::vector<float>{1, -2, 0x1.FEp127F}));
  const std::vector<float> half = read_all(file.value(), "h");
  EXPECT_EQ(half, (std::vector<float>{1, -2, 65504, 0x1p-24F, -0.0F, INFINITY}));
  EXPECT_TRUE(std::signbit(half[4]));
}

TEST_F(Safetensors, NamesWhatIsWrong) {
  const std::string one = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto tensor = [](const char* name, const char* type, const char* shape,
                         const char* offsets) {
    return std::string("\"") + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + '}';
  };
  const struct {
    const char* what;
    std::string bytes;
  } kCases[] = {
      {"too short", "abc"},
      {"header would have", file_of("{" + one + "}", 8).substr(0, 20)},
      {"header would have 1152921504606846976 bytes", std::string("\0\0\0\0\0\0\0\x10", 8) + "{}"},
      {"x: ends at byte 8 of 7: the file is cut short", file_of("{" + one + "}", 7)},
      {"has 1 bytes more", file_of("{" + one + "}", 9)},
      {"not JSON", file_of("{\"x\":", 8)},
      {"not a JSON object", file_of("[1]", 0)},
      {"x: the key stands twice", file_of("{" + one + "," + one + "}", 8)},
      {"x: unknown dtype \"F33\"", file_of("{" + tensor("x", "F33", "[2]", "[0,8]") + "}", 8)},
      {"x: not a shape", file_of("{" + tensor("x", "F32", "[-2]", "[0,8]") + "}", 8)},
      {"x: not a shape",
       file_of("{" + tensor("x", "F32", "[4611686018427387904,4]", "[0,8]") + "}", 8)},
      {"x: not a pair of data_offsets", file_of("{" + tensor("x", "F32", "[2]", "[8,0]") + "}", 8)},
      {"x: its data_offsets hold 8 bytes, F32 [3] takes 12",
       file_of("{" + tensor("x", "F32", "[3]", "[0,8]") + "}", 8)},
      {"x: needs dtype, shape and two data_offsets", file_of(R"({"x":{"dtype":"F32"}})", 8)},
      {"x: needs dtype, shape and two data_offsets", file_of(R"({"x":3})", 8)},
      {"y: overlaps", file_of("{" + one + "," + tensor("y", "F32", "[2]", "[4,12]") + "}", 12)},
      {"y: leaves a hole",
       file_of("{" + one + "," + tensor("y", "F32", "[1]", "[12,16]") + "}", 16)},
      {"__metadata__.k: not a string", file_of("{\"__metadata__\":{\"k\":1}}", 0)},
  };
  for (const auto& one_case : kCases) {
    put(at("a"), one_case.bytes);
    const auto file = SafetensorsFile::open(at("a"));
    ASSERT_FALSE(file) << one_case.what;
    EXPECT_NE(file.error().message.find(one_case.what), std::string::npos) << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(file.error().message.find(at("a") + ": "), 0U) << file.error().message;
  }
  EXPECT_NE(SafetensorsFile::open(at("none")).error().message.find("No such file"),
            std::string::npos);
  EXPECT_NE(SafetensorsFile::open(folder_).error().message.find("not a regular file"),
            std::string::npos);
}

// Any cut and any changed byte: refused, or read within bounds (the sanitizers watch).
TEST_F(Safetensors, SurvivesDamagedFiles) {
  const std::string whole =
      file_of(R"({"x":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}})", 8);
  std::uint64_t state = 1;
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = whole;
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    if (i % 4 == 0) bytes.resize((state >> 33) % whole.size());
    if (i % 4 != 0) bytes[(state >> 33) % whole.size()] = static_cast<char>(state >> 25);
    put(at("a"), bytes);
    const auto file = SafetensorsFile::open(at("a"));
    if (!file) {
      ++refused;
      continue;
    }
    for (const TensorInfo& tensor : file.value().tensors()) {
      if (!SafetensorsFile::readable(tensor)) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      file.value().read(tensor, 0, tensor.elements(), values.data(), 1);
    }
  }
  EXPECT_GE(refused, 100);  // every cut
}

TEST_F(Safetensors, AFullDiskIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "SKIPPED: no /dev/full here";
  const auto made = SafetensorsWriter::create("/dev/full", {{.name = "x", .shape = {2}}}, {});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("/dev/full: cannot write: "), std::string::npos)
      << made.error().message;
}

// Three tensors of 8 bytes, 16 at most in a file: two files; and one larger than that alone.
TEST_F(Index, SplitsAsHuggingFaceDoes) {
  const std::vector<TensorInfo> tensors{{.name = "a", .shape = {2}},
                                        {.name = "b", .shape = {2}},
                                        {.name = "c", .shape = {5}},
                                        {.name = "d", .shape = {1}}};
  auto made = TensorFilesWriter::open(true, folder_, "model", tensors, 16);
  ASSERT_TRUE(made) << made.error().message;
  // A second process opens the same files and writes the other half.
  auto joined = TensorFilesWriter::open(false, folder_, "model", tensors, 16);
  ASSERT_TRUE(joined) << joined.error().message;
  TensorFilesWriter one = std::move(made).value(), two = std::move(joined).value();
  const float values[] = {1, 2, 3, 4, 5};
  one.write(0, 0, 2, values, 1);
  two.write(1, 0, 2, values, 1);
  one.write(2, 0, 5, values, 1);
  two.write(3, 0, 1, values, 1);
  put(one.index_path(), one.index());
  ASSERT_TRUE(one.finish());
  ASSERT_TRUE(two.finish());
  EXPECT_TRUE(fs::exists(at("model-00001-of-00003.safetensors")));
  EXPECT_EQ(TensorFiles::find(folder_, "model"), at("model.safetensors.index.json"));
  const auto files = TensorFiles::open(at("model.safetensors.index.json"));
  ASSERT_TRUE(files) << files.error().message;
  std::string names;
  for (const TensorFiles::Tensor& tensor : files.value().tensors()) {
    names += tensor.info->name;
    const std::vector<float> read = read_all(*tensor.file, tensor.info->name);
    EXPECT_TRUE(std::equal(read.begin(), read.end(), values)) << tensor.info->name;
  }
  EXPECT_EQ(names, "abcd");

  const std::string index = get(at("model.safetensors.index.json"));
  const auto refused = [&](std::string text, const std::string& what) {
    put(at("model.safetensors.index.json"), text);
    const auto broken = TensorFiles::open(at("model.safetensors.index.json"));
    ASSERT_FALSE(broken) << what;
    EXPECT_NE(broken.error().message.find(what), std::string::npos) << broken.error().message;
  };
  std::string moved = index;
  moved.replace(moved.find("00001-of"), 8, "00002-of");
  refused(moved, "not in model-00002-of-00003.safetensors");
  refused("{}", "weight_map: is missing");
  refused(R"({"weight_map": {"a": "../a"}})", "weight_map.a: not a file's name");
  fs::remove(at("model-00003-of-00003.safetensors"));
  refused(index, "model-00003-of-00003.safetensors: cannot read: No such file");
}

}  // namespace
}  // namespace rehearse::exec
