(: Makes an auction site's data, joins and groups it. :)
declare variable $rounds external := 10;
declare function local:item($i, $seed) {
  <item id="i{$i}"><name>item {($i * 7919 + $seed) mod 10007}</name><price>{($i * 31 + $seed) mod 997}</price><seller>p{($i * 17) mod 300}</seller></item>
};
<rounds>{
  for $round in 1 to xs:integer($rounds)
  let $items := for $i in 1 to 12000 return local:item($i, $round)
  let $site := <site>{$items}</site>
  return <round n="{$round}">{
    for $item in $site/item
    group by $seller := string($item/seller)
    order by sum($item/price) descending, $seller
    return if (count($item) gt 39) then <seller id="{$seller}" items="{count($item)}" sum="{sum($item/price)}">{string-join(for $n in $item/name order by string($n) return substring(replace($n, 'item ', ''), 1, 2), ' ')}</seller> else ()
  }</round>
}</rounds>
