<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="html"/>
  <xsl:key name="person" match="person" use="@id"/>

  <xsl:template match="/">
    <html>
      <body>
        <table>
          <xsl:for-each select="site/items/item[@price &gt; 500]">
            <xsl:sort select="@price" data-type="number" order="descending"/>
            <xsl:sort select="name"/>
            <tr><xsl:apply-templates select="."/></tr>
          </xsl:for-each>
        </table>
        <xsl:for-each select="site/people/person[age &gt; 30]">
          <xsl:sort select="city"/>
          <p>
            <xsl:value-of select="concat(name, ' ', city, ' ', string-length(name))"/>
            <xsl:call-template name="words">
              <xsl:with-param name="text" select="name"/>
            </xsl:call-template>
          </p>
        </xsl:for-each>
      </body>
    </html>
  </xsl:template>

  <xsl:template match="item">
    <td><xsl:value-of select="position()"/></td>
    <td><xsl:value-of select="key('person', @seller)/name"/></td>
    <td><xsl:value-of select="translate(desc, 'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ')"/></td>
    <td><xsl:value-of select="format-number(@price, '#,##0.00')"/></td>
  </xsl:template>

  <!-- One element for each word: recursion is XSLT's only loop over a string. -->
  <xsl:template name="words">
    <xsl:param name="text"/>
    <xsl:choose>
      <xsl:when test="contains($text, ' ')">
        <b><xsl:value-of select="substring-before($text, ' ')"/></b>
        <xsl:call-template name="words">
          <xsl:with-param name="text" select="substring-after($text, ' ')"/>
        </xsl:call-template>
      </xsl:when>
      <xsl:otherwise>
        <i><xsl:value-of select="$text"/></i>
      </xsl:otherwise>
    </xsl:choose>
  </xsl:template>
</xsl:stylesheet>
