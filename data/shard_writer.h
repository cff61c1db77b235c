// Token shards written piece by piece.
#ifndef DATA_SHARD_WRITER_H_
#define DATA_SHARD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace data {

// Writes to a temporary file in the shard's folder, so that `path` is not touched before Publish.
// The temporary file is removed with a writer that was not published.
//
//   ABSL_ASSIGN_OR_RETURN(auto writer, ShardWriter::Create("train_000001.bin"));
//   ABSL_RETURN_IF_ERROR(writer->Append(tokens));
//   ABSL_RETURN_IF_ERROR(writer->Close());
//   ABSL_RETURN_IF_ERROR(writer->Publish());
class ShardWriter {
 public:
  // InvalidArgument if the temporary file cannot be created.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(const std::string& path);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();

  // Unavailable if the disk does not take them; ResourceExhausted beyond 2^31 - 1 tokens, the most
  // that a header can say.
  absl::Status Append(absl::Span<const uint16_t> tokens);

  // Writes the header and flushes everything to disk. InvalidArgument: no tokens.
  absl::Status Close();

  // Gives the closed file its name, in place of a file that has it.
  absl::Status Publish();

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }

 private:
  ShardWriter(std::string path, std::string temporary, int fd);

  const std::string path_, temporary_;
  int fd_;  // -1: closed
  int64_t tokens_ = 0;
  bool published_ = false;
};

}  // namespace data

#endif  // DATA_SHARD_WRITER_H_
