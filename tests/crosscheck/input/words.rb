# Makes a text, counts its words and rewrites it with regular expressions.
def text(n, seed)
  random = Random.new(seed)
  Array.new(n) { "w#{random.rand(2000)}" }.each_slice(12).map { |words| words.join(' ') }.join("\n")
end

sum = 0
ARGV[0].to_i.times do |round|
  all = text(20_000, round)
  counts = Hash.new(0)
  all.scan(/\w+/) { |word| counts[word] += 1 }
  best = counts.sort_by { |word, n| [-n, word] }.first(50)
  changed = all.gsub(/w(\d+)/) { Regexp.last_match(1).to_i.even? ? "even#{Regexp.last_match(1)}" : 'odd' }
  sum = (sum * 31 + best.map { |word, n| "#{word}=#{n}" }.join(',').sum + changed.length) % 1_000_000_007
end
puts sum
