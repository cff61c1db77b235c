// Files are read back by a second implementation of their format, below, which shares nothing with
// the writer.
#include "tools/trainer/event_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/checkpoint/files.h"
#include "tools/trainer/crc32c.h"
#include "tools/trainer/run_log.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// The remainder of a division of polynomials, bit by bit, highest first.
uint32_t SlowCrc32c(const std::string& data) {
  const auto reversed = [](uint32_t x, int bits) {
    uint32_t y = 0;
    for (int i = 0; i < bits; ++i) y |= (x >> i & 1) << (bits - 1 - i);
    return y;
  };
  uint32_t rest = 0xFFFFFFFF;
  for (const char c : data) {
    rest ^= reversed(static_cast<uint8_t>(c), 8) << 24;
    for (int bit = 0; bit < 8; ++bit) rest = (rest << 1) ^ (rest >> 31 ? 0x1EDC6F41 : 0);
  }
  return reversed(rest, 32) ^ 0xFFFFFFFF;
}

TEST(Crc32c, Rfc3720) {
  std::string rising(32, '\0'), falling(32, '\0');
  for (int i = 0; i < 32; ++i) {
    rising[i] = static_cast<char>(i);
    falling[i] = static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AA);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43);
  EXPECT_EQ(Crc32c(rising), 0x46DD794E);
  EXPECT_EQ(Crc32c(falling), 0x113FDB5C);
  // "An iSCSI - SCSI Read (10) Command PDU"
  std::string pdu(48, '\0');
  pdu[0] = 0x01;
  pdu[1] = '\xC0';
  pdu[16] = 0x14;
  pdu[22] = 0x04;
  pdu[27] = 0x14;
  pdu[31] = 0x18;
  pdu[32] = 0x28;
  pdu[40] = 0x02;
  EXPECT_EQ(Crc32c(pdu), 0xD9963A56);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(SlowCrc32c(rising), 0x46DD794E);
}

// A message's fields, in order: varints and fixed values as numbers, the rest as bytes.
struct Field {
  int number = 0;
  uint64_t value = 0;
  std::string bytes;
};

std::vector<Field> Parse(const std::string& message) {
  std::vector<Field> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(at++));
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    Field field;
    field.number = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
      case 5: {
        const size_t size = (key & 7) == 1 ? 8 : 4;
        std::memcpy(&field.value, message.substr(at, size).data(), size);
        at += size;
        break;
      }
      case 2: {
        const uint64_t size = varint();
        EXPECT_LE(at + size, message.size());
        field.bytes = message.substr(at, size);
        at += size;
        break;
      }
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.push_back(field);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
  bool start = false;
};

Event ParseEvent(const std::string& message) {
  Event event;
  for (const Field& field : Parse(message)) {
    switch (field.number) {
      case 1:
        std::memcpy(&event.wall_time, &field.value, 8);
        break;
      case 2:
        event.step = static_cast<int64_t>(field.value);
        break;
      case 3:
        event.version = field.bytes;
        break;
      case 5:
        for (const Field& value : Parse(field.bytes)) {
          const std::vector<Field> parts = Parse(value.bytes);
          EXPECT_EQ(parts.size(), 2u);
          EXPECT_EQ(parts[0].number, 1);
          EXPECT_EQ(parts[1].number, 2);
          float number;
          std::memcpy(&number, &parts[1].value, 4);
          event.scalars[parts[0].bytes] = number;
        }
        break;
      case 7: {
        const std::vector<Field> parts = Parse(field.bytes);
        event.start = parts.size() == 1 && parts[0].number == 1 && parts[0].value == 1;
        break;
      }
      default:
        ADD_FAILURE() << "field " << field.number;
    }
  }
  return event;
}

uint32_t U32(const std::string& bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes.at(i));
  return value;
}

// The checksum that is stored as `masked`.
uint32_t Unmasked(uint32_t masked) {
  const uint32_t turned = masked - 0xA282EAD8u;
  return turned >> 17 | turned << 15;
}

std::vector<Event> ReadEvents(const std::string& path) {
  const std::string data = *ReadFile(path);
  std::vector<Event> events;
  for (size_t at = 0; at < data.size();) {
    const std::string head = data.substr(at, 8);
    EXPECT_EQ(Unmasked(U32(data.substr(at + 8, 4))), SlowCrc32c(head)) << "at byte " << at;
    EXPECT_EQ(U32(head.substr(4)), 0u);
    const std::string message = data.substr(at + 12, U32(head));
    EXPECT_EQ(Unmasked(U32(data.substr(at + 12 + message.size(), 4))), SlowCrc32c(message));
    events.push_back(ParseEvent(message));
    at += 12 + message.size() + 4;
  }
  return events;
}

std::string Fresh(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  return folder;
}

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// A run of `steps` steps from a state of `first` on, as the trainer logs it.
void LogRun(const std::string& folder, int64_t first, int64_t steps) {
  auto events = EventFile::Create(folder);
  ASSERT_TRUE(events.ok()) << events.status();
  std::FILE* quiet = std::fopen("/dev/null", "w");
  auto log = RunLog::Create("", false, 10, quiet, *std::move(events));
  ASSERT_TRUE(log.ok());
  (*log)->Begin(first);
  (*log)->Validation(first, 5.5, 100.0 * first);
  for (int64_t step = first + 1; step <= first + steps; ++step) {
    (*log)->Step({.step = step,
                  .loss = 4.0 + step,
                  .lr = 0.5,
                  .momentum = 0.85,
                  .tokens = 4096 * step,
                  .step_ms = 12.5,
                  .tokens_per_s = 327680,
                  .window_tokens = 384},
                 12.5);
  }
  EXPECT_TRUE((*log)->Close().ok());
  std::fclose(quiet);
}

TEST(EventFile, HasWhatTheMetricsHave) {
  const std::string folder = Fresh("events");
  LogRun(folder, 0, 2);
  ASSERT_EQ(FilesOf(folder).size(), 1u);
  const std::vector<Event> events = ReadEvents(FilesOf(folder)[0]);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 0);
  EXPECT_EQ(events[2].step, 0);
  EXPECT_EQ(events[2].scalars,
            (std::map<std::string, float>{{"val/loss", 5.5f}, {"val/train_ms", 0.0f}}));
  EXPECT_EQ(events[4].step, 2);
  EXPECT_EQ(events[4].scalars, (std::map<std::string, float>{{"train/loss", 6.0f},
                                                             {"train/lr", 0.5f},
                                                             {"train/momentum", 0.85f},
                                                             {"train/window_tokens", 384.0f},
                                                             {"train/tokens", 8192.0f},
                                                             {"train/step_ms", 12.5f},
                                                             {"train/tokens_per_s", 327680.0f}}));
  const auto now = static_cast<double>(std::time(nullptr));
  for (const Event& event : events) EXPECT_NEAR(event.wall_time, now, 60);
}

TEST(EventFile, CountsStepsThatWereLeftOut) {
  const std::string folder = Fresh("skipped");
  auto events = EventFile::Create(folder);
  ASSERT_TRUE(events.ok()) << events.status();
  auto log = RunLog::Create("", false, 10, nullptr, *std::move(events));
  ASSERT_TRUE(log.ok());
  (*log)->Skipped(7, "the loss of slot 3 is nan", 2);
  EXPECT_TRUE((*log)->Close().ok());
  const std::vector<Event> read = ReadEvents(FilesOf(folder)[0]);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].step, 7);
  EXPECT_EQ(read[1].scalars, (std::map<std::string, float>{{"train/skipped", 2.0f}}));
}

// TensorBoard drops values of the START event's step and later: what the first run logged beyond
// the checkpoint, and nothing that the second does not log again.
TEST(EventFile, AResumedRunTakesBackWhatIsTrainedAgain) {
  const std::string folder = Fresh("resumed");
  LogRun(folder, 0, 5);
  LogRun(folder, 3, 4);  // in the same second
  ASSERT_EQ(FilesOf(folder).size(), 2u);
  const std::vector<Event> first = ReadEvents(FilesOf(folder)[0]);
  const std::vector<Event> second = ReadEvents(FilesOf(folder)[1]);
  ASSERT_EQ(first.back().step, 5);
  ASSERT_EQ(second.size(), 7u);
  EXPECT_TRUE(second[1].start);
  EXPECT_EQ(second[1].step, 4);
  EXPECT_EQ(second[2].step, 3);  // the validation of the state that it began with
  EXPECT_EQ(second[3].step, 4);
  EXPECT_EQ(second.back().step, 7);
}

TEST(EventFile, TheNameSortsBehindAllOthers) {
  const std::string folder = Fresh("sorted");
  fs::create_directories(folder);
  const std::string later = folder + "/events.out.tfevents.4102444800.host.7";
  ASSERT_TRUE(WriteFileAtomically(later, {""}).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/notes.txt", {""}).ok());
  auto file = EventFile::Create(folder);
  ASSERT_TRUE(file.ok());
  EXPECT_GT((*file)->path(), later);
  EXPECT_NE((*file)->path().find("/events.out.tfevents.4102444801."), std::string::npos);
}

TEST(EventFile, EachEventIsInTheFileAtOnce) {
  const std::string folder = Fresh("live");
  auto file = EventFile::Create(folder);
  ASSERT_TRUE(file.ok());
  (*file)->Write(1, {{"a", NAN}});
  ASSERT_EQ(ReadEvents((*file)->path()).size(), 2u);
  EXPECT_TRUE(std::isnan(ReadEvents((*file)->path())[1].scalars.at("a")));
  (*file)->Write(int64_t{1} << 40, {{"a", INFINITY}});
  EXPECT_EQ(ReadEvents((*file)->path())[2].step, int64_t{1} << 40);
}

TEST(EventFile, AFolderThatCannotBeIsBadInput) {
  const std::string in_the_way = Fresh("in_the_way");
  ASSERT_TRUE(WriteFileAtomically(in_the_way, {"x"}).ok());
  for (const std::string& folder : {in_the_way, in_the_way + "/below", std::string("/proc/no")}) {
    const auto file = EventFile::Create(folder);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << file.status();
    EXPECT_NE(std::string(file.status().message()).find("--tensorboard_dir=" + folder),
              std::string::npos)
        << file.status();
  }
}

}  // namespace
}  // namespace tools
